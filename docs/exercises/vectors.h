// Lets doctest print vectors, in the checks of the exercises.
#pragma once

#include <doctest/doctest.h>

#include <vector>

template <class T>
struct doctest::StringMaker<std::vector<T>> {
  static String convert(const std::vector<T>& values) {
    String text;
    for (const T& value : values) text += (text.size() > 0 ? String(", ") : String()) + toString(value);
    return String("{") + text + "}";
  }
};

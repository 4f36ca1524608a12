// Lets doctest print vectors, what may be nothing, and what threads share, in the checks of the exercises.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <vector>

template <class T>
struct doctest::StringMaker<std::vector<T>> {
  static String convert(const std::vector<T>& values) {
    String text;
    for (const T& value : values) text += (text.size() > 0 ? String(", ") : String()) + toString(value);
    return String("{") + text + "}";
  }
};

template <class T>
struct doctest::StringMaker<std::optional<T>> {
  static String convert(const std::optional<T>& value) { return value ? toString(*value) : String("nothing"); }
};

template <class T>
struct doctest::StringMaker<std::atomic<T>> {
  static String convert(const std::atomic<T>& value) { return toString(value.load()); }
};

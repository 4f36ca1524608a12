// Queries and checks of profiles, for tests.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/measure/observers/profiler.h"

namespace hs::test {

using bench::measure::Profile;
using bench::measure::ProfileSpan;

inline std::vector<ProfileSpan> spans_on(const Profile& profile, const std::string& row) {
  std::vector<ProfileSpan> spans;
  for (const ProfileSpan& span : profile.spans) {
    if (profile.rows[span.row] == row) spans.push_back(span);
  }
  return spans;
}

inline std::vector<ProfileSpan> spans_called(const std::vector<ProfileSpan>& spans, const std::string& name) {
  std::vector<ProfileSpan> found;
  std::ranges::copy_if(spans, std::back_inserter(found), [&](const ProfileSpan& span) { return span.name == name; });
  return found;
}

inline bool is_within(const ProfileSpan& inner, const ProfileSpan& outer) {
  return inner.begin >= outer.begin && inner.end <= outer.end;
}

// Checks that spans are in order, that any two on a row are nested or disjoint, and that depth counts the enclosing
// spans.
inline void check_nesting(const Profile& profile) {
  std::vector<ProfileSpan> around;
  for (const ProfileSpan& span : profile.spans) {
    REQUIRE(span.row < profile.rows.size());
    CHECK(span.end >= span.begin);
    if (!around.empty() && around.back().row != span.row) {
      CHECK(around.back().row < span.row);
      around.clear();
    }
    if (!around.empty()) CHECK(span.begin >= around.back().begin);
    while (!around.empty() && around.back().end <= span.begin) around.pop_back();
    CHECK(span.depth == static_cast<int>(around.size()));
    if (!around.empty()) CHECK(is_within(span, around.back()));
    around.push_back(span);
  }
}

}  // namespace hs::test

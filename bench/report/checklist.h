// What a record says about how its runs were made: the article's checklists filled in, and the mistakes that it made.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

struct Check {
  enum class Answer { yes, no, unknown };
  std::string question;
  Answer answer;
  std::string why;  // the figure or the setting that decides
};
std::vector<Check> checklist(const Json& record);

struct Mistake {
  std::string name;
  bool of_the_article;  // one of its seven; else ours
  bool made;
  std::string why;
};
// All that are looked for, made or not, the article's seven first.
std::vector<Mistake> mistakes(const Json& record);

}  // namespace hs::bench::report

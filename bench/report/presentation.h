// The presentation of a record of any command: a headline, tables and remarks. A command builds them once and stores
// them in its record, so the terminal, Markdown and HTML show the same, both at once and later (`report`). All timed
// runs share one set of columns, declared in presentation.cpp.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/table.h"

namespace hs::bench::report {

// Adds the members "headline", "tables" and "remarks".
void present(Json& record, const std::string& headline, const std::vector<Table>& tables,
             const std::vector<std::string>& remarks = {});
Json to_json(const std::vector<Table>& tables);

// The record's headline; without one, a description of its data.
std::string opening(const Json& record);
// "mnist: 20000 for training, 5000 for the test"
std::string data_line(const Json& record);
// "AMD EPYC, 2 cores, ... 2026-11-21, commit 35d0582950bc"
std::string machine_line(const Json& record);
// Remarks below the tables, one sentence each: absent rows, how to read the results, missing values and the reasons.
std::vector<std::string> remarks(const Json& record);
// The record's own tables. A record without any gets the results table if its rows are timed runs (train, techniques,
// peers), otherwise a plain table of its list.
std::vector<Table> tables_of(const Json& record);

// Adds the scalar members of `object` to `flat`, those of objects in it as "object.member". Ignores lists.
void flatten(const Json& object, const std::string& prefix, Json& flat);
// The row's name; "+ NAME" if the row also uses all techniques above it.
std::string label_of(const Json& row);
// Timed runs, rounded for people, with the columns that this record has values for.
Table results_table(const Json& record);

// For the terminal. Each line with a number names the data, so that synthetic digits are not mistaken for real ones.
std::string to_terminal(const Json& record);
std::string to_terminal(const std::vector<Table>& tables, const std::string& data_name);
std::string markdown(const Json& record);
// bench/report/report.html with two elements filled in: "record" is the record unchanged, "shown" is the terminal's
// view of it. The record is one that check_record() has seen.
std::string html_report(const Json& record);
// The parts of it, for other pages. JSON for a script element: no part of it may look like a tag.
std::string inside_script(const Json& value);
std::string filled(std::string page, const std::string& place, const std::string& content);

// For programs: a line per row, RFC 4180, every digit; a missing value is empty. `train` and `techniques` always have
// the same columns; other commands have the scalar members of their list ("rows", "calls", or the variants of
// "kernels") in the order of first appearance, with members of objects as "object.member".
std::string csv(const Json& record);

}  // namespace hs::bench::report

// What a record shows, whichever command wrote it: a headline, tables and remarks. A command makes them once and puts
// them into its record; the terminal, Markdown and HTML show the same, then and later (`report`). Timed runs have one
// set of columns, declared in presentation.cpp.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/table.h"

namespace hs::bench::report {

// Adds the members "headline", "tables" and "remarks". A cell that is NaN or infinity becomes "-".
void present(Json& record, const std::string& headline, const std::vector<Table>& tables,
             const std::vector<std::string>& remarks = {});
Json to_json(const std::vector<Table>& tables);

// The headline; of a record that has none, what data it is of.
std::string opening(const Json& record);
// "mnist: 20000 for training, 5000 for the test"
std::string data_line(const Json& record);
// "AMD EPYC, 2 cores, ... 2026-11-21, commit 35d0582950bc"
std::string machine_line(const Json& record);
// What to say below the tables, one sentence each: absent rows, how to judge, what is missing and why.
std::vector<std::string> remarks(const Json& record);
// Its own; otherwise of timed runs (train, techniques, peers) the table of results, of others the list of their rows.
std::vector<Table> tables_of(const Json& record);

// The row's name; "+ NAME" of one with all techniques above it.
std::string label_of(const Json& row);
// Timed runs, rounded for people, with the columns that this record has values for.
Table results_table(const Json& record);

// For the terminal. Each line with a number names the data, so that nobody takes synthetic digits for others.
std::string to_terminal(const Json& record);
std::string to_terminal(const std::vector<Table>& tables, const std::string& data_name);
std::string markdown(const Json& record);

// For programs: a line per row, RFC 4180, every digit; a missing value is empty. Of `train` and
// `techniques` always the same columns; of the others the scalar members of the command's list ("rows", "calls", or the
// variants of "kernels") in the order of their first appearance, those of objects as "object.member".
std::string csv(const Json& record);

}  // namespace hs::bench::report

// What a record shows, whichever command wrote it: a headline, tables and remarks. A command makes them once and puts
// them into its record; the terminal, Markdown and HTML show the same, then and later (`report`).
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
// Its own; else of timed runs (train, techniques, peers) the table of results; else its list as it is.
std::vector<Table> tables_of(const Json& record);
// Whether its rows are timed training runs.
bool has_results(const Json& record);

// For the terminal. Each line with a figure names the data, so that nobody takes synthetic digits for others.
std::string to_terminal(const Json& record);
std::string to_terminal(const std::vector<Table>& tables, const std::string& data_name);
std::string markdown(const Json& record);

// For programs: a line per row, RFC 4180, every digit; figures that there are not are empty. Of `train` and
// `techniques` always the same columns; of the others the scalar members of the command's list ("rows", "calls", or the
// variants of "kernels") in the order of their first appearance, those of objects as "object.member".
std::string csv(const Json& record);

}  // namespace hs::bench::report

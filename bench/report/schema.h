// The schema of records: the members that `report` and `compare` read, and the check of a record against it.
#pragma once

#include <string>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

// A shape is written like what it describes: {"rows!": [{"name!": "string", "parts": {"*": "number"}}]}. A leaf is the
// name of a type, [] and {} are of anything, "*" stands for every member, and a name that ends in ! for one that must
// be there. What may be missing may be null, and so may every number: it was not measured. Members that the shape does
// not name are passed over.
//
// Throws Error (bad_input) that names the first wrong member: "WHERE: rows[2].name is 5, expected string".
void check_shape(const Json& value, const Json& shape, const std::string& where);

// Checks a record. Throws as check_shape() does.
void check_members(const Json& record, const std::string& where);

}  // namespace hs::bench::report

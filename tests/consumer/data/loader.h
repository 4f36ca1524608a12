// A header of the user's that is called like one of ours.
#pragma once

struct DataOfAnotherKind {};

// Text from outside (a path, a file, a record), made safe to show in a message or a report.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace hs {

// Escapes what would act on a terminal or deceive a reader instead of being seen: control characters (C0, DEL, C1) and
// bytes that are not UTF-8 become \x1b; characters that are invisible or change the direction of writing become
// \u{202e}. The result is UTF-8 on one line; escaping it again changes nothing.
std::string printable_text(std::string_view text);
std::string printable(const std::filesystem::path& path);

}  // namespace hs

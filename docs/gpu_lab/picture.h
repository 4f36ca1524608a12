// Draws, from the counts of a run, which lane of a warp touches which word: what `--picture` prints.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>

#include "emulator/emulator.h"

namespace lab {

// A row is 32 words: those of the banks, or four sectors, which are blank where they are not touched. Of lanes that
// share a word it shows the first.
inline void draw(const hs::emulator::Counts::Costliest& request, bool sectors) {
  std::map<uint64_t, std::array<std::string, 32>> rows;
  for (const auto& [lane, address, bytes] : request.lanes) {
    for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) {
      std::string& cell = rows[word / 32][word % 32];
      cell = cell.empty() ? (lane < 10 ? " " : "") + std::to_string(lane) + ' ' : cell.substr(0, 2) + '+';
    }
  }
  std::printf(sectors ? "  word " : "  bank ");
  for (int i = 0; i < 32; ++i) std::printf("%s%2d ", i % 8 == 0 ? "|" : "", sectors ? i % 8 : i);
  std::puts("|");
  for (const auto& [row, cells] : rows) {
    std::printf("%6llu ", static_cast<unsigned long long>(32 * (row - rows.begin()->first)));
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto sector = cells.begin() + i / 8 * 8;
      const bool touched = !sectors || std::any_of(sector, sector + 8, [](auto& cell) { return !cell.empty(); });
      std::printf("%s%s", i % 8 == 0 ? "|" : "", cells[i].empty() ? touched ? " . " : "   " : cells[i].c_str());
    }
    std::puts("|");
  }
}

inline void draw(const hs::emulator::Counts& counts) {
  const auto head = [](const char* memory, const auto& request, const char* what, const char* how = "") {
    std::printf("\nIn %s memory a %s costs most, %llu %s%s%s:\n", memory, request.is_store ? "store" : "load",
                static_cast<unsigned long long>(request.cost), what, request.cost == 1 ? "" : "s", how);
  };
  const auto &global = counts.costliest_global, &shared = counts.costliest_shared;
  if (!global.lanes.empty()) {
    head("global", global, "sector");
    draw(global, true);
  }
  if (!shared.lanes.empty()) {
    const uint32_t bytes = shared.lanes[0].bytes;
    head("shared", shared, "bank conflict",
         bytes == 16  ? ", a quarter of the lanes at a time"
         : bytes == 8 ? ", half of the lanes at a time"
                      : "");
    draw(shared, false);
  }
}

}  // namespace lab

// What the judge and a subject, the process that runs what is judged, say to each other: messages over a socket, and
// memory that both have mapped. The judge trusts nothing that comes from the other side.
#pragma once

#include <cstddef>
#include <span>

#include "bench/cli/json_file.h"
#include "engine/tensor.h"
#include "kernels/examples/checks.h"

namespace hs::bench::judge {

// The shared memory: tensors of rows, then those of timed calls. Pages that nobody touches cost nothing.
inline constexpr size_t row_bytes = size_t{512} << 20;
inline constexpr size_t call_bytes = size_t{3} << 30;
inline constexpr size_t shared_bytes = row_bytes + call_bytes;
inline constexpr uint64_t subject_memory = uint64_t{4} << 30;  // what a subject may map beside it

// In the subject these have the numbers of its open files.
inline constexpr int socket_file = 3, memory_file = 4;
inline constexpr const char* subject_word = "judge-subject";  // its first argument

// A message of the judge that begins with this byte runs timed calls, in the order of the bytes after it; the answer is
// `calls_done`. `end_calls` ends their case, without an answer. All other messages are JSON.
inline constexpr char run_calls = 'T', calls_done = 'D', end_calls = 'E';

// Messages, of at most so many bytes.
inline constexpr size_t most_message = 100'000;
bool send_message(int file, std::string_view text);
std::string receive_message(int file);  // "" at the end

// Puts tensors one after another into memory, and says of each its place, type and shape; null: it is undefined.
// Throws Error (internal): no room is left
Json pack(const std::vector<Tensor>& tensors, std::span<std::byte> memory);
// Copies on the CPU. Throws Error (bad_input) or a Json exception if one of `places` is not within the memory.
std::vector<Tensor> unpack(const Json& places, std::span<const std::byte> memory);

// Whether the row calls the slot of this name.
bool reaches(const examples::OpCase& row, const examples::RowRun& how, const std::string& slot);

// Rows that both sides know by these numbers: the op table's for seed 0, else drawn_rows(). They stay where they are.
// walk `at_timed_sizes`: those of timed_cases() for a batch of `seed`, in their order.
inline constexpr int at_timed_sizes = -1;
const std::vector<examples::OpCase>& rows_of(uint64_t seed, int walk);

Json to_json(const examples::RowRun& how);
examples::RowRun row_run_of(const Json& json);

}  // namespace hs::bench::judge

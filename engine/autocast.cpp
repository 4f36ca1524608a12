#include "engine/autocast.h"

#include "engine/check.h"

namespace hs {
namespace {

constexpr const char* names[] = {"f32", "tf32", "f16", "bf16"};

}  // namespace

const char* name(Precision precision) { return names[static_cast<int>(precision)]; }

Precision parse_precision(std::string_view wanted) {
  for (const Precision precision : {Precision::f32, Precision::tf32, Precision::f16, Precision::bf16}) {
    if (wanted == name(precision)) return precision;
  }
  fail(ExitCode::usage, "precision {}: expected f32, tf32, f16 or bf16", wanted);
}

Autocast::Autocast(Precision precision) {
  ambient().tf32 = precision == Precision::tf32;
  ambient().autocast = precision == Precision::f16    ? DType::f16
                       : precision == Precision::bf16 ? DType::bf16
                                                      : DType::f32;
}

Autocast::Autocast(Precision precision, ParameterArena& arena) : Autocast(precision) {
  if (ambient().autocast != DType::f32) arena.cast_parameters(ambient().autocast);
}

}  // namespace hs

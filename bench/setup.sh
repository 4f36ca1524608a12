# Sourced by bench/run, tests/run and .ci/run: packages, configure, build. Needs only a machine with bash and git.
# Messages go to stderr, so that stdout is the program's own. `top` is the root of the checkout.
# shellcheck shell=bash

top=$(unset CDPATH && cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Relative paths start at the caller's folder; the programs below may run elsewhere.
[[ ${HALFSTEP_DATA:-/} == /* ]] || export HALFSTEP_DATA="$PWD/$HALFSTEP_DATA"

# shellcheck disable=SC2034  # used by the scripts that source this one
build_packages=(g++ cmake ninja-build libeigen3-dev libfmt-dev nlohmann-json3-dev zlib1g-dev libpng-dev libjpeg-dev libssl-dev)

say() { printf 'halfstep: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

build_minutes() { echo $((8 / $(nproc) + 1)); }

asks_for_help() { [[ " $* " =~ \ (--help|-h|help|--version)\  ]]; }

# Asked for help before anything is built: says what the script does, and ends. Help of the program itself needs the program.
help_before_build() {
  asks_for_help "$@" && [ ! -x "$top/build/release/bench/halfstep-bench" ] || return 0
  sed -n 's/^project(\(halfstep\) VERSION \([^ ]*\).*/\1 \2/p' "$top/CMakeLists.txt"
  sed -n '2,/^[^#]/s/^# \?//p' "$0"
  echo "Nothing is built yet: the first build takes roughly $(build_minutes) minutes, and then --help lists what there is.
./bench/run ready says whether this machine can build; docs/README.md and docs/command_line.md are the pages to read."
  exit
}

# Sets `as_root` to what apt-get is called through, or fails where this user may not. Asks for a password on a terminal alone, and
# only before the first configure.
become_root() {
  as_root=(env DEBIAN_FRONTEND=noninteractive)
  [ "$(id -u)" != 0 ] || return 0
  as_root=(sudo "${as_root[@]}")
  command -v sudo >/dev/null || return
  ! sudo -n env apt-get --version >/dev/null 2>&1 || return 0
  [ -t 0 ] && [ -t 2 ] && ! compgen -G "$top/build/*/CMakeCache.txt" >/dev/null || return
  say "to install ${missing[*]}, sudo wants your password; without it (Enter, until sudo gives up) the build is tried without them"
  sudo -v
}

# Installs the missing ones of the named Debian packages. If it cannot, continues as long as the tools are available:
# CMake finds libraries installed by other means, and downloads the header-only ones.
install_packages() {
  local installed missing=() as_root package tool
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package; do
    grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if command -v apt-get >/dev/null && become_root; then
    say "installing ${missing[*]}"
    # One unreachable third-party source fails the update, but matters only if it provides the packages.
    "${as_root[@]}" apt-get -qq update >/dev/null 2>&1 || say "apt-get update failed, going on with the lists of before"
    (logged apt "${as_root[@]}" apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "${missing[@]}") && return
  fi
  say "going on without some packages (Debian's names); who may install them here does it with"
  say "  sudo apt-get install --no-install-recommends ${missing[*]}"
  for tool in c++ cmake ninja; do command -v $tool >/dev/null || die "there is no $tool here, and nothing can be built without"; done
}

# logged NAME COMMAND...: writes the output to build/NAME.log, and its end to stderr if the command fails.
logged() {
  local log="$top/build/$1.log"
  shift
  { mkdir -p "$top/build" && : >"$log"; } 2>/dev/null ||
    die "cannot write $log: build/ belongs to $(stat -c %U "$top/build" 2>/dev/null || stat -c %U "$top")"
  "$@" 3>&2 >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    [ "$1" != with_progress ] || shift
    die "failed: $* (all of it: $log)"
  }
}

# Runs a build and says on fd 3 at every twentieth how far it is.
with_progress() {
  "$@" 3>&- | {
    local line part=0 time begin=$SECONDS
    while IFS= read -r line; do
      printf '%s\n' "$line"
      [[ $line =~ ^\[([0-9]+)/([0-9]+)\] && ${BASH_REMATCH[2]} -ge 10 ]] || continue
      [ $((20 * BASH_REMATCH[1] / BASH_REMATCH[2])) -gt $part ] || continue
      part=$((20 * BASH_REMATCH[1] / BASH_REMATCH[2])) time=$((SECONDS - begin))
      printf 'halfstep: built %d of %d, %d:%02d min\n' "${BASH_REMATCH[@]:1:2}" $((time / 60)) $((time % 60)) >&3
    done
  }
}

# Lets CMake compile through ccache, where there is one. Paths below the checkout are hashed as relative ones, so that a copy
# of it in build/ compiles only what differs. The rest of the variables let it work with precompiled headers.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR="$top" CCACHE_NOHASHDIR=1 \
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}

cmake_version() { cmake --version | awk 'NR == 1 { print $3 }'; }
at_least() { [ "$(printf '%s\n' "$@" | sort -V | head -n 1)" = "$1" ]; } # at_least LEAST FOUND

# What a configure of a preset depends on, but for the sources, for which the build itself configures again.
settings() {
  env | grep -E '^(CC|CXX|CUDACXX|CUDAHOSTCXX|[A-Z]*FLAGS|CMAKE_[A-Z_]*)=' | sort || true
  cmake --version
  "${CXX:-c++}" --version
  type -P c++ nvcc mpicxx python3 node nodejs || true
  cat "$top/CMakePresets.json"
  echo "$top, $1: ${HALFSTEP_CMAKE_ARGS:-}" # a checkout that was moved or copied configures anew
}

# build PRESET [ARGUMENT OF cmake --build]...: builds build/PRESET, which it configures if settings() have changed since it last
# did. That is from only the preset and HALFSTEP_CMAKE_ARGS: it discards the CMake cache, so that no settings of an earlier run
# remain; with unchanged flags nothing is recompiled. Else the folder stays as it is, with what its user has set there by hand.
# `lean`, of a caller that needs less than everything, leaves that out of a new folder, and takes it from none.
lean=()
build() {
  local arguments last now folder="$top/build/$1"
  at_least 3.25 "$(cmake_version)" || die "CMake $(cmake_version) is too old: 3.25 is needed"
  read -ra arguments <<<"${HALFSTEP_CMAKE_ARGS:-}"
  use_ccache
  now=$(settings "$1")
  mkdir -p "$top/build"
  (
    # Two concurrent builds would write the same files.
    flock -n 9 || { say "waiting for another build of build/$1" && flock 9; }
    cd "$top" || exit
    last=$(cat "$folder/configured" 2>/dev/null || true)
    [ -n "$last${HALFSTEP_CMAKE_ARGS:-}" ] || [ ! -f "$folder/build.ninja" ] || last=$now # by hand
    if [ ! -f "$folder/build.ninja" ] || { [ "$last" != "$now" ] && [ "$last" != "$now${lean[*]}" ]; }; then
      rm -f "$folder"/{CMakeCache.txt,build.ninja,configured}
      logged "$1-configure" cmake --preset "$1" "${lean[@]}" "${arguments[@]}"
      echo "$now${lean[*]}" >"$folder/configured"
      say "building build/$1${lean[*]:+ with ${lean[*]}} (minutes the first time, then seconds)"
    fi
    logged "$1-build" with_progress cmake --build "build/$1" "${@:2}"
  ) 9>"$top/build/$1.lock"
}

# Runs a command without address space randomisation if that is permitted: the sanitizers of GCC 12 fail with the amount
# that newer kernels use.
fixed_addresses() {
  local fixed=(setarch "$(uname -m)" -R)
  "${fixed[@]}" true 2>/dev/null || fixed=()
  "${fixed[@]}" "$@"
}

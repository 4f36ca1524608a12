# Sourced by bench/run, tests/run and .ci/run: packages, configure, build. Needs only a machine with bash and git.
# Messages go to stderr, so that stdout is the program's own. `top` is the root of the checkout.
# shellcheck shell=bash

top=$(unset CDPATH && cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Relative paths start at the caller's folder; the programs below may run elsewhere.
case "${HALFSTEP_DATA:-}" in
  "" | /*) ;;
  *) export HALFSTEP_DATA="$PWD/$HALFSTEP_DATA" ;;
esac

# shellcheck disable=SC2034  # used by the scripts that source this one
build_packages=(g++ cmake ninja-build libeigen3-dev libfmt-dev doctest-dev libcli11-dev nlohmann-json3-dev zlib1g-dev
  libpng-dev libssl-dev)

say() { printf 'halfstep: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Installs the missing ones of the named Debian packages. If it cannot, continues as long as the tools are available:
# CMake finds libraries installed by other means, and downloads the header-only ones.
install_packages() {
  local installed missing=() as_root=() package tool
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package; do
    grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  if command -v apt-get >/dev/null && { [ ${#as_root[@]} = 0 ] || command -v sudo >/dev/null; }; then
    say "installing ${missing[*]}"
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    # One unreachable third-party source fails the update, but matters only if it provides the packages.
    "${as_root[@]}" apt-get -qq update >/dev/null 2>&1 || say "apt-get update failed, going on with the lists of before"
    logged apt "${as_root[@]}" apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "${missing[@]}"
    return
  fi
  for tool in c++ cmake ninja; do
    command -v $tool >/dev/null || die "please install these packages (Debian's names): ${missing[*]}"
  done
  say "cannot install ${missing[*]} (no apt-get, or neither root nor sudo), trying without"
}

# logged NAME COMMAND...: writes the output to build/NAME.log, and its end to stderr if the command fails.
logged() {
  local log="$top/build/$1.log"
  shift
  mkdir -p "$top/build"
  "$@" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "failed: $* (all of it: $log)"
  }
}

# Lets CMake compile through ccache, where there is one. Paths below the checkout are hashed as relative ones, so that a copy
# of it in build/ compiles only what differs. The rest of the variables let it work with precompiled headers.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR="$top" CCACHE_NOHASHDIR=1 \
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}

# build PRESET [ARGUMENT OF cmake --build]...: configures and builds build/PRESET from only the preset and
# HALFSTEP_CMAKE_ARGS. It discards the CMake cache, so that no settings of an earlier run remain; with unchanged flags
# nothing is recompiled.
build() {
  local arguments version
  version=$(cmake --version | awk 'NR == 1 { print $3 }')
  [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ] || die "CMake $version is too old: 3.25 is needed"
  read -ra arguments <<<"${HALFSTEP_CMAKE_ARGS:-}"
  use_ccache
  mkdir -p "$top/build"
  (
    # Two concurrent builds would write the same files.
    flock -n 9 || { say "waiting for another build of build/$1" && flock 9; }
    cd "$top" || exit
    rm -f "build/$1/CMakeCache.txt"
    logged "$1-configure" cmake --preset "$1" "${arguments[@]}"
    say "building build/$1 (minutes the first time, then seconds)"
    logged "$1-build" cmake --build "build/$1" "${@:2}"
  ) 9>"$top/build/$1.lock"
}

# Runs a command without address space randomisation if that is permitted: the sanitizers of GCC 12 fail with the amount
# that newer kernels use.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    setarch "$(uname -m)" -R "$@"
  else
    "$@"
  fi
}

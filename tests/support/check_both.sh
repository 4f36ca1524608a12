# shellcheck shell=bash
# check_both NAME STARTER REASON COMMAND...: the command passes with the word `solution` behind it; without, it refuses the
# starter, while its reader has not touched that. For tests/exercise and tests/gpu_lab.
check_both() {
  local name=$1 starter=$2 reason=$3 log="$top/build/${1/ /_}_both.log"
  shift 3
  "$@" solution >"$log" 2>&1 || { cat "$log" && die "$name: the solution fails"; }
  git -C "$top" diff --quiet HEAD -- "$starter" || { say "$name: the starter is changed: not checked" && return; }
  refused "$name, starter" "$reason" "$@"
  echo "$name: the solution passes, the starter is refused"
}

# refused NAME REASON COMMAND...: it ends with exit code 1 and says the reason, and no value is a pointer, or of a type that
# cannot be printed.
refused() {
  local name=$1 reason=$2 log=${1%%,*} status=0
  log=$top/build/${log/ /_}_refused.log
  "${@:3}" >"$log" 2>&1 </dev/null || status=$?
  { [ $status = 1 ] && grep -qF -- "$reason" "$log" && ! grep -q '{?}\|0x[0-9a-f]\{6\}' "$log"; } ||
    { cat "$log" && die "$name: ends with exit code $status, expected 1, '$reason', and neither {?} nor a pointer"; }
}

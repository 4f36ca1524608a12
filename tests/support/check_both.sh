# shellcheck shell=bash
# check_both NAME STARTER REASON COMMAND...: the command passes with the word `solution` behind it; without, it ends with exit
# code 1 and says the reason, while its reader has not touched the starter. For tests/exercise and tests/gpu_lab.
check_both() {
  local name=$1 starter=$2 reason=$3 log="$top/build/${1/ /_}_both.log" status=0
  shift 3
  "$@" solution >"$log" 2>&1 || { cat "$log" && die "$name: the solution fails"; }
  git -C "$top" diff --quiet HEAD -- "$starter" || { say "$name: the starter is changed: not checked" && return; }
  "$@" >"$log" 2>&1 || status=$?
  { [ $status = 1 ] && grep -qF "$reason" "$log"; } ||
    { cat "$log" && die "$name: the starter ends with exit code $status, expected 1 and '$reason'"; }
  echo "$name: the solution passes, the starter is refused"
}

#!/usr/bin/env bash
# The tools of the demo agent: every function with a @cmd line is one. The comments say what the model is told, and
# what reaches the function as argc_<name>. What a tool answers it writes to $LLM_OUTPUT; stdout is shown to people.
set -euo pipefail

# @env LLM_OUTPUT=/dev/stdout Where the answer goes
# @env DEMO_GREETING=Hello The word to greet with
# @meta require-tools tr

# @cmd Greet somebody.
# @arg name! Whom to greet
# @arg others* More people to greet
# @option -t --times=1 <INT> How often
# @option --tone[=plain|loud|quiet] How it shall sound
# @flag --wave Add a wave of the hand
greet() {
  local line name
  for name in "$argc_name" ${argc_others[@]+"${argc_others[@]}"}; do
    line="$DEMO_GREETING, $name!"
    case "$argc_tone" in
      loud) line="$(printf '%s' "$line" | tr '[:lower:]' '[:upper:]')" ;;
      quiet) line="($line)" ;;
    esac
    if [[ "${argc_wave:-}" == 1 ]]; then line+=" o/"; fi
    for ((i = 0; i < argc_times; i++)); do
      printf '%s\n' "$line"
    done
  done >> "$LLM_OUTPUT"
}

# @cmd Roll dice. The answer is JSON, so the model sees its parts.
# @option --sides[6|8|12|20] Sides of each die; 6 if not given
# @option --dice=`_one` <INT> How many
roll() {
  local sides="${argc_sides:-6}" total=0 one rolls=""
  for ((i = 0; i < argc_dice; i++)); do
    one=$((RANDOM % sides + 1))
    total=$((total + one))
    rolls+="${rolls:+, }$one"
    printf 'rolled %s\n' "$one" # for whoever watches
  done
  printf '{"rolls": [%s], "total": %s}\n' "$rolls" "$total" >> "$LLM_OUTPUT"
}

# @cmd Join texts.
# @option --part+ <TEXT> A text; may be given several times
# @option --between <TEXT> What to put between two texts
join() {
  local joined="" part
  for part in "${argc_part[@]}"; do
    joined+="${joined:+${argc_between:-}}$part"
  done
  printf '%s\n' "$joined" >> "$LLM_OUTPUT"
}

# @cmd Keep a note for the next conversation.
# @option --text! The note
remember() {
  mkdir -p "$LLM_AGENT_CACHE_DIR"
  printf '%s\n' "$argc_text" >> "$LLM_AGENT_CACHE_DIR/notes.txt"
  echo "kept" >> "$LLM_OUTPUT"
}

# @cmd Delete all notes. A person is asked first.
forget() {
  # shellcheck source=/dev/null
  source "$LLM_PROMPT_UTILS_FILE"
  guard_operation "Delete all notes of ${LLM_AGENT_VAR_USERNAME:-friend}?"
  rm -f "$LLM_AGENT_CACHE_DIR/notes.txt"
  echo "deleted" >> "$LLM_OUTPUT"
}

# Functions that begin with _ are no tools.
_one() {
  echo 1
}

# With `dynamic_instructions: true` in config.yaml, this is where the instructions come from.
_instructions() {
  printf 'You are a demo agent on %s. It is %s.\n' "$(uname -s)" "$(date +%A)" >> "$LLM_OUTPUT"
}

#!/usr/bin/env bash
# Turns what pip says into a counter: one line that is rewritten on a terminal, elsewhere a line for every tenth
# package. pip's own bar needs a terminal as its stdout, and then also prints a line for each package.
count=0
tell() {
  if [ -t 1 ]; then printf '\r\033[K  %s' "$1"; elif [ "$2" = now ]; then printf '  %s\n' "$1"; fi
}
while IFS= read -r line; do
  case "$line" in
    *Downloading*.metadata* | *"Using cached"*.metadata*) ;;
    *Downloading* | *"Using cached"* | *"Processing "*)
      count=$((count + 1))
      name=${line#"${line%%[! ]*}"} name=${name#Downloading } name=${name#Using cached } name=${name#Processing } name=${name##*/}
      [ $((count % 10)) -eq 1 ] && when=now || when=later
      tell "$count packages: ${name%%-[0-9]*}" "$when"
      ;;
    "Installing collected"*) tell "$count packages fetched, installing them" now ;;
  esac
done
[ -t 1 ] && printf '\r\033[K'
exit 0

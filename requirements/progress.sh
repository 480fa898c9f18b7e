#!/usr/bin/env bash
# Turns what pip says into a counter, with the seconds so far: one line that is rewritten on a terminal; elsewhere a
# line for every tenth package, and after five seconds of silence. pip's own bar needs a terminal as its stdout, and
# then also prints a line for each package.
count=0 said=0 doing="asking for packages" partial=
tell() {
  if [ -t 1 ]; then
    printf '\r\033[K  %s, %d s' "$doing" "$SECONDS"
  elif [ "$1" = now ] || [ $((SECONDS - said)) -ge 5 ]; then
    printf '  %s, %d s\n' "$doing" "$SECONDS"
    said=$SECONDS
  fi
}
while true; do
  IFS= read -r -t 1 line
  status=$?
  line=$partial$line partial=
  when=later
  if [ $status -gt 128 ]; then # the second is over; what came of a line is kept
    partial=$line
  elif [ $status -ne 0 ] && [ -z "$line" ]; then
    break
  else
    case "$line" in
      *Downloading*.metadata* | *"Using cached"*.metadata*) ;;
      *Downloading* | *"Using cached"* | *"Processing "*)
        count=$((count + 1))
        name=${line#"${line%%[! ]*}"} name=${name#Downloading } name=${name#Using cached } name=${name#Processing } name=${name##*/}
        doing="$count packages: ${name%%-[0-9]*}"
        [ $((count % 10)) -eq 1 ] && when=now
        ;;
      "Installing collected"*) doing="$count packages fetched, installing them" when=now ;;
    esac
  fi
  tell $when
done
[ -t 1 ] && printf '\r\033[K'
exit 0

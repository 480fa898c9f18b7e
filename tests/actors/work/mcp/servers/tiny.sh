# An MCP server of 2026-07-28 that starts in 2 ms, for tests with many. Its one tool, `pid`, tells its process id.
# With `mute` as its argument it never tells which tools it has.
# Each start writes the pid as a line to $STARTS, if that is set.
if [ -n "$STARTS" ]; then echo $$ >>"$STARTS"; fi
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
    *'"method":"server/discover"'*)
      result='{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}' ;;
    *'"method":"tools/list"'*)
      if [ "$1" = mute ]; then continue; fi
      result='{"tools":[{"name":"pid","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*)
      result='{"content":[{"type":"text","text":"'$$'"}]}' ;;
    *)
      continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done

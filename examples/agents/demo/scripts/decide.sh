# Standard output is one JSON object; its keys become state.
case "$GRAPH_STATE" in
  *'"mood":"angry"'* | *'"mood": "angry"'*) queue=fast ;;
  *) queue=normal ;;
esac
echo "{\"queue\": \"$queue\"}"

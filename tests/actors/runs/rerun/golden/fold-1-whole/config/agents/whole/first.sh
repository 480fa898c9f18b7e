echo first >> /tmp/golden-recorded/world
if [ "$(cat /tmp/golden-recorded/world.kill 2>/dev/null)" = first ]; then rm /tmp/golden-recorded/world.kill; kill -9 $HOST; sleep 10; fi
echo '{"first": "began"}'

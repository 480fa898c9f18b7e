
import os, time

def effect(name):
    with open('/tmp/golden-recorded/world', "a") as file:
        file.write(name + "\n")
    kill = '/tmp/golden-recorded/world' + ".kill"
    if os.path.exists(kill) and open(kill).read() == name:
        os.unlink(kill)
        os.kill(int(os.environ["HOST"]), 9)
        time.sleep(10)

def is_ready(text):
    effect("is_ready")
    return "read" in text

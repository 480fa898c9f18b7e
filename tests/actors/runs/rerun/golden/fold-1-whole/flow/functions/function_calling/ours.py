
import os, time

def effect(name):
    with open('/tmp/golden-recorded/world', "a") as file:
        file.write(name + "\n")
    kill = '/tmp/golden-recorded/world' + ".kill"
    if os.path.exists(kill) and open(kill).read() == name:
        os.unlink(kill)
        os.kill(int(os.environ["HOST"]), 9)
        time.sleep(10)

def make_file(name: str, _context: dict) -> str:
    effect("make_file")
    place = _context["python_workspace_root"] / name
    place.write_text("by a tool")
    return f"made {name} as {_context['node_id']}"

def call_user(instruction: str, _context: dict) -> str:
    reply = _context["human_prompt"].request("asked", instruction)
    return "the user says " + reply.text

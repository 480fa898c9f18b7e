
import os, time

def effect(name):
    with open('/tmp/golden-recorded/world', "a") as file:
        file.write(name + "\n")
    kill = '/tmp/golden-recorded/world' + ".kill"
    if os.path.exists(kill) and open(kill).read() == name:
        os.unlink(kill)
        os.kill(int(os.environ["HOST"]), 9)
        time.sleep(10)

def numbered(text, context):
    context["count"] = context.get("count", 0) + 1
    effect(f"numbered-{context['count']}")
    (context["python_workspace_root"] / f"numbered-{context['count']}").write_text("x")
    return {"content": f"{text} ({context['count']})", "metadata": {"count": context["count"]}}

"""Several agents: a writer has a reviewer read its drafts. The outcome has the cost of both."""

import callboard

reviewer = callboard.Agent(name="reviewer", description="Reviews drafts.", instructions="Say what is wrong.")


async def review(ctx: callboard.Context[None], draft: str) -> str:
    """Have a draft reviewed."""
    return str((await ctx.run(reviewer, draft)).unwrap())


writer = callboard.Agent(name="writer", instructions="Write, and have each draft reviewed.", tools=[review])
outcome = callboard.run_sync(writer, "A slogan for a bridge.")
print(outcome.unwrap(), [child.agent for child in outcome.children])
print(f"${sum(usage.cost for usage in outcome.usage.values()):.4f} in {outcome.turns} turns")

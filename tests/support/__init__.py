"""Helpers of the tests: fixtures, servers and programs that several folders use. Each module says first what it gives.

the suite itself     workers, tiers, examples, durations, near, messages, waiting, ports, starter, secret_watch
models               fake_models, models_beside, gemini_wire, google_services, aws_messages, strict_wires, codec_bench
agents and graphs    agent_runs, conversation, tool_families, tool_bench, graph_scripts, graph_checks, seeded_repos
workflows            workflow_run, workflow_driver, workflow_agents, workflow_files, workflow_graphs, workflow_guide
MCP                  mcp_processes, mcp_entries, mcp_links, mcp_protected, mcp_guest, fake_mcp_http, scripted_server
servers              http_server, http_agents, control_server, control_hub, control_fixtures, page_server
terminals            screen, tmux, program_window, terminal_model, breaking_terminal, chat_screen, talking
kills and clusters   journals, killed_servers, interrupted_chat, cluster, cluster_history, cutting_proxy, postgres
other people         browser, editors, traced, raw_servers, auth_server
"""

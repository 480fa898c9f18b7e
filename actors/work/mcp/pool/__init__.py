"""Pool of servers shared by key: start, leases, idle time, end, and the cache of their tool lists.

    servers    all servers of a process, and the leases of each agent
    pool       keys of servers, their leases in the kernel's pool, and the life of one server
    catalog    tools that servers offer, cached on disk, so that a listed server need not run
    status     the report of this process for `callboard mcp status`

May import `client`, `links` and `auth`. Start with `servers`.
"""

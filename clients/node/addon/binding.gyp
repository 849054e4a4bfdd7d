{
    "targets": [
        {
            "target_name": "truce",
            "sources": ["addon.c"],
            "cflags": ["-std=c11", "-Wall"],
            "libraries": ["-ldl", "-lpthread"],
            "ldflags": ["-Wl,-z,nodelete"],
        }
    ]
}

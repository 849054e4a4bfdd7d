#include "base/process_name.h"

#include <bson/bson.h>
#include <unistd.h>

#include "base/environment.h"

char *truce__process_name(void)
{
    char host[65] = {0};

    if (truce__environment())
        return bson_strdup("simulated:1");
    if (gethostname(host, sizeof host - 1) || !bson_utf8_validate(host, strlen(host), false))
        bson_snprintf(host, sizeof host, "host");
    return bson_strdup_printf("%s:%ld", host, (long)getpid());
}

/* golden.c - see golden.h. */
#define SUITE golden
#include "golden.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

static const char *golden_path(const char *name)
{
    static char path[4096];
    const char *source = getenv("FLEET_SOURCE");

    snprintf(path, sizeof path, "%s/test/golden/%s",
             source && *source ? source : ".", name);
    return path;
}

/* Show where two texts part. */
static void check_lines(const char *name, const char *got, const char *want)
{
    int line = 1;

    while (*got && *got == *want) {
        line += *got == '\n';
        got++;
        want++;
    }
    if (*got != *want)
        test_fail(__FILE__, __LINE__, "%s:%d: \"%.*s\", not \"%.*s\"", name,
                  line, (int)strcspn(got, "\n"), got, (int)strcspn(want, "\n"),
                  want);
}

char *golden_read(const char *name)
{
    char *text;
    size_t size;

    CHECK_OK(fl_file_read(golden_path(name), &text, &size));
    return text;
}

void golden_check(const char *name, const char *got)
{
    const char *path = golden_path(name);
    char *want;

    CHECK(got != NULL);
    if (getenv("FLEET_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");

        CHECK(f && fputs(got, f) >= 0 && fclose(f) == 0);
        return;
    }
    want = golden_read(name);
    check_lines(name, got, want);
    fl_free(want);
}

/* clock.c - monotonic time. */
#include "base/clock.h"

#include <time.h>

int64_t fl_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t fl_now_ms(void)
{
    return fl_now_ns() / 1000000;
}

void fl_wall_text(char text[20])
{
    time_t now = time(NULL);
    struct tm tm;

    localtime_r(&now, &tm);
    strftime(text, 20, "%Y-%m-%d %H:%M:%S", &tm);
}

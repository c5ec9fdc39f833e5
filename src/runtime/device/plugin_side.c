/* plugin_side.c - in a plug-in, and in nothing else: base/error.h, memory.h, log.h
 * and clock.h as far as plug-ins need them, through the table of the library
 * that opened it (plugin.h). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/device/plugin_side.h"

static const fl_host *host;

bool fl_plugin_side_enter(const fl_host *h)
{
    if (h->version == FL_PLUGIN_VERSION && h->size >= sizeof *h)
        host = h;
    return host != NULL;
}

fleet_status fl_fail(fleet_status code, const char *format, ...)
{
    char text[1000];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return host->fail(code, text);
}

void fl_error_take(fl_error *e, fleet_status code)
{
    e->code = code;
    snprintf(e->text, sizeof e->text, "%s", host->last_error());
}

fleet_status fl_error_raise(const fl_error *e)
{
    return e->code == FLEET_OK ? e->code : host->fail(e->code, e->text);
}

void fl_log_line(fl_log *log, fleet_log_level level, const char *format, ...)
{
    char line[2000];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    host->log(log, level, line);
}

void *fl_alloc(size_t size)
{
    return host->alloc(size);
}

void fl_free(void *p)
{
    host->free(p);
}

int64_t fl_now_ns(void)
{
    return host->now_ns();
}

int64_t fl_now_ms(void)
{
    return fl_now_ns() / 1000000;
}

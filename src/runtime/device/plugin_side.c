/* plugin_side.c - in a plug-in, and in nothing else: base/error.h, memory.h,
 * log.h and clock.h as far as plug-ins need them, through the table of the
 * library that opened it (plugin.h). */
#include "runtime/device/plugin_side.h"

#include "base/clock.h"
#include "base/memory.h"

static const fl_host *host;

bool fl_plugin_side_enter(const fl_host *h)
{
    if (h->version == FL_PLUGIN_VERSION && h->size >= sizeof *h)
        host = h;
    return host != NULL;
}

fleet_status fl_fail(fleet_status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    host->fail(code, format, args);
    va_end(args);
    return code;
}

void fl_error_take(fl_error *e, fleet_status code)
{
    host->error_take(e, code);
}

fleet_status fl_error_raise(const fl_error *e)
{
    return host->error_raise(e);
}

void fl_log_line(fl_log *log, fleet_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    host->log(log, level, format, args);
    va_end(args);
}

void *fl_alloc(size_t size)
{
    return host->alloc(size);
}

void fl_free(void *p)
{
    host->free(p);
}

fleet_status fl_memory_spare(size_t size, const char *what)
{
    return host->memory_spare(size, what);
}

int64_t fl_now_ns(void)
{
    return host->now_ns();
}

int64_t fl_now_ms(void)
{
    return fl_now_ns() / 1000000;
}

/* error.c - the last failure of each thread; names and texts of statuses. */
#include "base/error.h"

#include <string.h>

#include "base/text.h"

static _Thread_local fl_error last;

const char *fleet_strerror(fleet_status status)
{
    switch (status) {
#define XX(name, value, text)                                                  \
    case FLEET_##name:                                                         \
        return text;
        FLEET_STATUS_MAP(XX)
#undef XX
    }
    return "unknown status";
}

const char *fleet_status_name(fleet_status status)
{
    switch (status) {
#define XX(name, value, text)                                                  \
    case FLEET_##name:                                                         \
        return "FLEET_" #name;
        FLEET_STATUS_MAP(XX)
#undef XX
    }
    return "FLEET_?";
}

const char *fleet_last_error(void)
{
    return last.text;
}

fleet_status fl_fail_v(fleet_status code, const char *format, va_list args)
{
    char text[sizeof last.text]; /* the arguments may point into last */

    fl_format(text, sizeof text, format, args);
    fl_text_escape(text, sizeof text);
    memcpy(last.text, text, sizeof text);
    last.code = code;
    return code;
}

fleet_status fl_fail(fleet_status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fl_fail_v(code, format, args);
    va_end(args);
    return code;
}

fleet_status fl_fail_in(fleet_status code, const char *format, ...)
{
    char where[256];
    va_list args;

    va_start(args, format);
    fl_format(where, sizeof where, format, args);
    va_end(args);
    return fl_fail(code, "%s: %.700s", where, last.text);
}

fleet_status fleet_last_status(void)
{
    return last.code;
}

fleet_status fl_last_code(void)
{
    return last.code == FLEET_OK ? FLEET_EINVAL : last.code;
}

void fl_error_clear(void)
{
    last = (fl_error){FLEET_OK, ""};
}

void fl_error_take(fl_error *e, fleet_status code)
{
    *e = last;
    e->code = code;
}

fleet_status fl_error_raise(const fl_error *e)
{
    if (e->code != FLEET_OK && e != &last) {
        last = *e;
        fl_text_escape(last.text, sizeof last.text);
    }
    return e->code;
}

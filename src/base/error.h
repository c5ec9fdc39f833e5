/* error.h - how a failure travels: a code is returned, its text stays with the
 * thread. */
#pragma once

#include <stdarg.h>

#include <fleet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keep a failure's text for fleet_last_error() and return its code, so that a
 * function says what went wrong and leaves in one statement. */
fleet_status fl_fail(fleet_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, for functions that are given a format themselves. */
fleet_status fl_fail_v(fleet_status code, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Put "what: " before the text of the failure that is under way. */
fleet_status fl_fail_in(fleet_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The code of this thread's last failure, for callers that got NULL and no
 * status; FLEET_EINVAL if there was none. */
fleet_status fl_last_code(void);

/* Forget this thread's last failure: before a call into a library that reports
 * running out of memory by nothing but fl_alloc()'s own failure. */
void fl_error_clear(void);

/* A failure on its way from the thread that met it to the one that reports. */
typedef struct fl_error {
    fleet_status code;
    char text[1000];
} fl_error;

void fl_error_take(fl_error *e, fleet_status code); /* this thread's, now */
fleet_status fl_error_raise(const fl_error *e);     /* as this thread's own */

/* Leave the function if call failed; its code and text are already set. */
#define FL_TRY(call)                                                           \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

/* The same, to a label that cleans up; needs a local "fleet_status status". */
#define FL_GOTO(label, call)                                                   \
    do {                                                                       \
        status = (call);                                                       \
        if (status != FLEET_OK)                                                \
            goto label;                                                        \
    } while (0)

#ifdef __cplusplus
}
#endif

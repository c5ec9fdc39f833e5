/* log.h - lines for the host's log callback, or for stderr. */
#pragma once

#include <pthread.h>
#include <stdarg.h>

#include <fleet/base.h>

typedef struct fl_log {
    fleet_log_callback *callback; /* NULL: stderr */
    void *user;
    fleet_log_level level;
    pthread_mutex_t lock; /* one call of the callback at a time */
} fl_log;

void fl_log_init(fl_log *log, fleet_log_callback *callback, void *user,
                 fleet_log_level level);
void fl_log_done(fl_log *log);

/* log may be NULL: then nothing is written. */
void fl_log_line(fl_log *log, fleet_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, for functions that are given a format themselves. */
void fl_log_line_v(fl_log *log, fleet_log_level level, const char *format,
                   va_list args) __attribute__((format(printf, 3, 0)));

#define FL_INFO(log, ...) fl_log_line(log, FLEET_LOG_INFO, __VA_ARGS__)
#define FL_WARN(log, ...) fl_log_line(log, FLEET_LOG_WARNING, __VA_ARGS__)

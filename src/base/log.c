/* log.c - lines for the host's callback, or for stderr. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "base/thread.h"

void fl_log_init(fl_log *log, fleet_log_callback *callback, void *user,
                 fleet_log_level level)
{
    log->callback = callback;
    log->user = user;
    log->level = level == FLEET_LOG_DEFAULT ? FLEET_LOG_INFO : level;
    pthread_mutex_init(&log->lock, NULL);
}

void fl_log_done(fl_log *log)
{
    pthread_mutex_destroy(&log->lock);
}

static void to_stderr(fleet_log_level level, const char *line)
{
    static const char *const name[] = {[FLEET_LOG_DEBUG] = "debug",
                                       [FLEET_LOG_WARNING] = "warning",
                                       [FLEET_LOG_ERROR] = "error"};
    fl_hush hush;

    fl_hush_begin(&hush);
    if (level == FLEET_LOG_INFO)
        fprintf(stderr, "%s\n", line);
    else
        fprintf(stderr, "fleet %s: %s\n", name[level], line);
    fl_hush_end(&hush);
}

void fl_log_line_v(fl_log *log, fleet_log_level level, const char *format,
                   va_list args)
{
    char line[2000];

    if (!log || level < log->level)
        return;
    fl_format(line, sizeof line, format, args);
    fl_text_escape(line, sizeof line);

    pthread_mutex_lock(&log->lock);
    if (log->callback)
        log->callback(log->user, level, line);
    else
        to_stderr(level, line);
    pthread_mutex_unlock(&log->lock);
}

void fl_log_line(fl_log *log, fleet_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fl_log_line_v(log, level, format, args);
    va_end(args);
}

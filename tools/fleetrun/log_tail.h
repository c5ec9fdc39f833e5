/* log_tail.h - the last lines of a log, where a user looks first. */
#ifndef FLEETRUN_LOG_TAIL_H
#define FLEETRUN_LOG_TAIL_H

/* Write "HEADING; PATH ends with:" and its last lines to stderr. */
void run_log_tail_show(const char *heading, const char *path);

#endif

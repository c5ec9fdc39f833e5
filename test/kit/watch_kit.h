/* watch_kit.h - a small training by a configuration, and what is said of it. */
#pragma once

#include <fleet/fleet.h>

enum { WATCH_MOST = 40 };

/* What the last one has logged, and the validations that it has shown. */
extern char watch_said[20000];
extern fleet_evaluation watch_seen[WATCH_MOST];
extern int watch_n_seen;

extern int watch_resumes; /* by --resume, from now on */

/* 100 samples in batches of 32: 4 a pass, of 3 passes; with a NULL-ended list
 * of key=value. The line is for fleet_free(). */
fleet_status watch_act(fleet_config_action action, const char *const *set,
                       char **line);
char *watch_train(const char *const *set);

/* "key=" and the path of a file of the test's folder. */
const char *watch_path(const char *key, const char *file);

/* The configuration with these two, of which b may be NULL, is no good. */
void watch_refuse(const char *a, const char *b, const char *words);

/* As if a crash had come behind that one: later checkpoints of the folder "all"
 * go, up to the 40th. */
void watch_forget(int checkpoint);

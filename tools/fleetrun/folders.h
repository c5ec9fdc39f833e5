/* folders.h - folders that are removed with the job: both fleetrun and its
 * keeper know their names, so that either removes them when the other is
 * killed; and how folders are made. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

enum { RUN_WORD_SIZE = 17, RUN_FOLDER_SIZE = 48 };

/* A random word, for names that no other job has. */
fleet_status run_folders_choose(char word[RUN_WORD_SIZE]);

/* Make the folder of sockets; that of shared memory and MPI's other files. This
 * user alone can enter them. */
fleet_status run_folders_make(const char *word, char path[RUN_FOLDER_SIZE]);
fleet_status run_folders_make_shared(const char *word,
                                     char path[RUN_FOLDER_SIZE]);

/* The same for journals, in an existing folder `in`, because they may become
 * larger than /tmp. */
fleet_status run_folders_make_journals(const char *word, const char *in,
                                       char *path, size_t size);

/* Make a folder, and those above it that are absent. What is named in errors is
 * `what`, and the flag that gives it. */
fleet_status run_folders_make_deep(const char *flag, const char *what,
                                   const char *path, mode_t mode);

/* Remove the three, with what is in them; they may be absent. */
void run_folders_remove(const char *word, const char *journals_in);

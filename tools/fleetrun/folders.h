/* folders.h - folders that are removed with the job: both fleetrun and its
 * keeper know their names, so that either removes them when the other is
 * killed. */
#pragma once

#include "base/error.h"

enum { RUN_WORD_SIZE = 17, RUN_FOLDER_SIZE = 48 };

/* A random word, for names that no other job has. */
fleet_status run_folders_choose(char word[RUN_WORD_SIZE]);

/* Make the folder of sockets; that of shared memory and MPI's other files. This
 * user alone can enter them. */
fleet_status run_folders_make(const char *word, char path[RUN_FOLDER_SIZE]);
fleet_status run_folders_make_shared(const char *word,
                                     char path[RUN_FOLDER_SIZE]);

/* Remove both, with what is in them; they may be absent. */
void run_folders_remove(const char *word);

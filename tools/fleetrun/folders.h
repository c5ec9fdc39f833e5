/* folders.h - folders that go with the job: both fleetrun and its keeper know
 * their names, so that either removes them when the other is killed. */
#ifndef FLEETRUN_FOLDERS_H
#define FLEETRUN_FOLDERS_H

#include "base/error.h"

enum { RUN_WORD_SIZE = 17, RUN_FOLDER_SIZE = 48 };

/* A word that no other job has. */
fleet_status run_folders_choose(char word[RUN_WORD_SIZE]);

/* For sockets, and for shared memory and what else MPI keeps; of this user
 * alone. */
fleet_status run_folders_make(const char *word, char path[RUN_FOLDER_SIZE]);
fleet_status run_folders_make_shared(const char *word,
                                     char path[RUN_FOLDER_SIZE]);

/* Both, with what is in them; they need not be there. */
void run_folders_remove(const char *word);

#endif

/* save_part.h - saves and loads of a job whose parts are with several
 * processes: lanes of servers, or ranks that share out tables. */
#pragma once

#include "fleet/job/handle.h"
#include "fleet/save/load_into.h"
#include "ps/host/server.h"

/* A lane's part of a command: it writes files part-SERVER-LANE-*, or of a lane
 * that has followed another one part-SERVER-LANE-replica-*. */
fl_server_command fl_save_part_of_lane;
fl_server_command fl_save_part_of_replica;

/* A rank's part of a save, in files part-rank-RANK-*. */
fleet_status fl_save_part_of_rank(fl_store *store, const fl_bucket_set *own,
                                  int rank, const char *request, char **answer);

/* What worker 0 tells lanes or ranks, JSON for fl_free(): which parts of the
 * save go into the folder; and what it does with the answer of one of them: its
 * parts are added to the list, its rows to the save's. */
fleet_status fl_save_part_request(const fl_save *s, const char *folder,
                                  char **text);
fleet_status fl_save_part_answer(const fl_save *s, const char *answer,
                                 fl_json *list);

/* Worker 0 has all parts written: fl_save_elsewhere.write, arg is the
 * handle. */
fleet_status fl_save_part_collect(void *arg, const fl_save *s,
                                  const char *folder, fl_json *list);

/* What worker 0 tells lanes of a load, for fl_free(). */
fleet_status fl_save_part_load_text(const char *path, const fl_load_how *how,
                                    char **text);

/* From now on each process that has rows notes which of them come and go:
 * before a save that later ones will add to. */
fleet_status fl_save_part_follow(fleet *f);

/* fl_save_write() of a save that other processes write parts of. */
fleet_status fl_save_part_write(fleet *f, const fl_save *s, const char *path);

/* ranks_commands.h - commands of collective and hybrid jobs: one rank has all
 * ranks save, load or hash the rows that each of them has. */
#pragma once

#include "fleet/job/handle.h"
#include "ps/partition.h"
#include "runtime/store/job_command.h"
#include "runtime/store/store_hash.h"

/* All ranks do it when they next agree what to do: the text is a table's
 * name for a hash, else JSON. answer[]: of each rank, for fl_free(). */
fleet_status fl_ranks_command(fleet *f, fl_job_command command,
                              const char *text, char **answer);

fl_agree_serve fl_ranks_serve; /* a rank's part of what another rank began */
fl_rows_hasher fl_ranks_hash;

/* Buckets of tables whose rows are this rank's. */
fl_bucket_set fl_ranks_own(const fleet *f);

/* png_file.h - a picture as a file of PNG. */
#pragma once

#include "canvas.h"

/* FLEET_EIO: the path and the reason are named, and no part of a file stays.
 * FLEET_EUNSUPPORTED where this program was built without libpng. */
fleet_status png_file_write(const canvas *c, const char *path);

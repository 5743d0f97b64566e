/* SPDX-License-Identifier: Apache-2.0 */
/* The orientation that cameras note in EXIF, and what it means for a box of the picture. For the decode. */
#ifndef TSP_EXIF_H
#define TSP_EXIF_H

#include "decode.h"

/* The orientation in the TIFF structure that EXIF data is, 1 to 8; 1 (upright) where it says nothing legal. */
uint32_t tsp_exif_orientation(const uint8_t *tiff, size_t len);

/* Whether rows of the upright picture are columns of the stored one. */
bool tsp_exif_swaps(uint32_t orientation);

/*
 * Restates a view of the upright picture as one of the stored picture, which is width x height: the box moves, and
 * flip, flop and turn bring its pixels to where they are upright.
 */
void tsp_exif_turn(uint32_t orientation, uint32_t width, uint32_t height, struct tsp_view *view);

#endif

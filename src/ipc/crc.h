/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 as in zlib and Ethernet (polynomial 0xedb88320, reflected): against damage, not against lies. */
#ifndef TSI_CRC_H
#define TSI_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Of `crc`'s bytes and n more; begin with 0. */
uint32_t tsi_crc(uint32_t crc, const void *bytes, size_t n);

#endif

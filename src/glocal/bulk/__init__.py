"""Answers about, and vectors of, any number of photos: on this machine, or on many.

addresses   what the user named -> the uri of every photo, and a uri -> its pixels
store       a folder, here or in object storage, whose files are there as a whole or not at all
job         a folder of parts: the list of photos, one Parquet file per stretch of it, and at the end the counts
look        what one process does: photos in, rows out
crew        such processes, and what happens when one of them dies
local, on_ray   who works on the parts
vectors     the vectors of a collection: answers and the nearest photos, without looking at pictures again
"""

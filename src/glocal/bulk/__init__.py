"""Answers about, and vectors of, any number of photos: on this machine, or on many.

addresses        what the user names -> the uri of every photo, and a uri -> its pixels.
store, parquet   folders and Parquet files, here or in object storage.
job              a folder of parts: the list of photos, a Parquet file per part, and the counts.
rows             photos in, rows of results out.
worker, workers  processes that compute the rows of parts; one that dies is replaced.
on_ray           such processes on many machines.
vectors          stored vectors: answers and the nearest photos, without the photos themselves.
results          files of answers for a few photos, CSV and JSON lines.
"""

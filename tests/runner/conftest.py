from cluster import cluster as cluster
from cluster import network as network

"""Upper bounds for trained networks: how wrong can this one be, over all sequences of its box?"""
